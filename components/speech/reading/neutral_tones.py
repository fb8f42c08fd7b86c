"""Words of Mandarin whose second syllable has no tone of its own, where pypinyin's dictionary gives it one.

They are of the list that every candidate of the Putonghua Proficiency Test (普通话水平测试) must read so. Words that
mean one thing with the tone and another without it (地道, 大意, 精神) are left as the dictionary has them.
"""

_WORDS = """
    爸爸 妈妈 哥哥 姐姐 弟弟 妹妹 爷爷 奶奶 叔叔 舅舅 姑姑 婆婆 公公 太太 姥姥 娃娃 星星 谢谢 朋友 学生 先生 师傅
    丈夫 媳妇 姑娘 闺女 亲戚 兄弟 女婿 大夫 护士 和尚 裁缝 木匠 铁匠 丫头 早上 晚上 乡下 里头 前头 后头 时候 月亮
    云彩 地方 东西 事情 故事 消息 意思 主意 名字 知识 学问 道士 规矩 关系 交情 脾气 力气 运气 福气 客气 生意 买卖
    工夫 功夫 本事 记性 岁数 动静 笑话 相声 招牌 衣服 衣裳 枕头 钥匙 扫帚 灯笼 风筝 窗户 栅栏 篱笆 罐头 木头 石头
    骨头 拳头 指头 舌头 头发 眉毛 眼睛 耳朵 嘴巴 下巴 尾巴 胳膊 脑袋 脊梁 屁股 指甲 唾沫 咳嗽 豆腐 点心 月饼 烧饼
    馒头 萝卜 芝麻 核桃 石榴 蘑菇 葡萄 高粱 庄稼 粮食 骆驼 狐狸 苍蝇 蛤蟆 刺猬 牲口 漂亮 聪明 凉快 暖和 便宜 舒服
    清楚 明白 糊涂 厉害 老实 热闹 结实 麻烦 马虎 活泼 机灵 勤快 痛快 爽快 苗条 委屈 冤枉 喜欢 认识 告诉 商量 打听
    打算 打扮 打发 答应 招呼 收拾 休息 欺负 吓唬 耽误 折腾 张罗 应酬 称呼 琢磨 溜达 凑合 将就 念叨 在乎 对付 挑剔
"""

NEUTRAL = frozenset(_WORDS.split())
